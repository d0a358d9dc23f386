"""What verdicts mean: functions of plain numbers, which know nothing of engines or stores."""

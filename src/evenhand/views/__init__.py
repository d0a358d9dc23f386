"""What people see and call: commands, web page, report, plots, exports, Python, pytest. They count nothing."""

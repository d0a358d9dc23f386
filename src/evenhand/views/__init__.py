"""What people see and call: commands, web page, report, charts, exports, Python, pytest. They count nothing."""

"""What people see and call: command line, web page, report, plots, exports, Python, pytest. They render; they count nothing."""

"""The report that can be mailed: all that a database says, in one file.

contents.py   the results of each judge, which pairs are shown, examples of each kind -> Report, a frozen dataclass
passages.py   untrusted text in Markdown, where it can neither break out nor call anybody
summary.py    a Report as Markdown, for a pull request
page.py       a Report as one HTML file that opens offline; needs the extra evenhand[web]
"""

from evenhand.views.report.contents import JudgeReport, Report, ReportOptions, compile_report

__all__ = ["JudgeReport", "Report", "ReportOptions", "compile_report"]

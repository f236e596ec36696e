"""Quality of a data set: statistics, report, duplicates and Weisfeiler-Lehman colours."""

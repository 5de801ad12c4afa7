"""The report: the numbers in one process, their final arithmetic, and the page that shows them."""

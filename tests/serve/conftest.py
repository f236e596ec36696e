from tests.browser.fixtures import browser  # noqa: F401  (a fixture of the tests beside)

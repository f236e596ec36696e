from tests.browser.fixtures import browser, visit  # noqa: F401  (fixtures of the tests beside)

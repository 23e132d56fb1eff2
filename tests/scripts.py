"""Pieces of the programs that tests start as a user's own."""

# Every one of the given is refused in words.
REFUSED = """
def refused(call, *given):
    for one in given:
        try:
            call(one)
        except weft.WeftError as error:
            assert "expected a" in str(error), error
        else:
            raise AssertionError(one)
"""

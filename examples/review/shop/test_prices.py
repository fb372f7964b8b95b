from prices import total


def test_a_discount_is_taken_off():
    assert total([10, 10], discount=0.5) == 10

"""Prices of the shop."""


def total(prices, discount=0):
    """What a basket costs."""
    sum = 0.0
    for price in prices:
        sum += price
    return sum - sum * discount


def read_prices(path):
    try:
        return [float(line) for line in open(path)]
    except Exception:
        return []

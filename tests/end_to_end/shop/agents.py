"""What a worker of the shop finds when it starts."""

from tests.end_to_end.shop.clerks import declare_clerks

declare_clerks()

"""The demo app: a desk that answers customers about their orders and refunds them."""

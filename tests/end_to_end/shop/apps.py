"""The shop's place in Django."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.end_to_end.shop"

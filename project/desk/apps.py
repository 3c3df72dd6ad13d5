"""The desk's place in Django."""

from django.apps import AppConfig


class DeskConfig(AppConfig):
    name = "project.desk"
    verbose_name = "Desk"
    default_auto_field = "django.db.models.BigAutoField"

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class AgentTurnsConfig(AppConfig):
    name = "agentturns"
    verbose_name = "Agent turns"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from agentturns import checks
        from agentturns.worker import schedule

        checks.register()
        schedule.connect()
        autodiscover_modules("agents")

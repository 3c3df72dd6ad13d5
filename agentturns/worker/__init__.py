"""The process side: what turns a doorbell's message into running turns, on threads, in forked processes."""

"""A shop with one clerk for each vendor's wire, whose tools say when they have begun."""

"""Problem sets made from the exercises: build what students get, grade what they hand in."""

"""A text of the book's own, which no model was trained on, to measure losses with."""

TEXT = """\
The clock in the station hall had been wrong for eleven years, and nobody minded. Every morning \
Marta opened the ticket window, looked up, and added nineteen minutes in her head. The drivers did \
the same, and so did the children who came through on their way to school. A clock that is always \
wrong by the same amount is almost as good as one that is right.

Then a new manager came from the city. He was a careful man, and on his first day he sent for \
somebody to repair the clock. It took an afternoon and a long ladder. When the work was done the \
clock showed the right time, to the second, and the manager was pleased.

On the next morning everything went wrong. Marta opened the window nineteen minutes late. Two \
drivers left before their passengers had come, and the children stood on the platform and watched \
the back of the train grow smaller. The baker, who set her ovens by the station clock, burned \
forty loaves. By noon there was a crowd in the hall, and all of them were looking up.

The manager explained that the clock was right. Nobody said that it was not. An old man who had \
worked on the railway all his life took off his hat and said, "Sir, we don't need a clock to tell \
us the time. We need it to tell all of us the same time."

The manager thought about this for three days. Then he had a small sign painted and hung below the \
clock. It said, in plain white letters, that this clock was now right. The people read it, and \
slowly they stopped adding nineteen minutes in their heads. It took most of the winter. Even in \
spring, when Marta was tired, she would still look up at the clock, add nineteen minutes, and \
close the window too early.
"""

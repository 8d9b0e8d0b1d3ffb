"""How right a network is: what it is given, what must come out, and how far outputs are apart.

Samples, pictures and labelled data become inputs; the source model says what is right; packages,
stages and single layers are compared with it.
"""

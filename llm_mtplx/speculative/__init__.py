"""Speculative decoding: draft, verify, accept. Exact for any head, depth and temperature.

Words: the *trunk* is the target model, the *head* its MTP head (the drafter). A *round* drafts
*depth* tokens after the *primary* (a token already emitted, not yet forwarded), verifies them in
one trunk forward of depth + 1 rows and accepts a prefix of them. The token that follows the
accepted ones is the *bonus* if all were accepted, else the *correction*; it is the next primary.
"""

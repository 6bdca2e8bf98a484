#!/usr/bin/env python3
"""The device's answer to an address handle with a LID and without a GID: address_handle.py DEVICE."""

import os
import sys

from pyverbs.addr import AH, AHAttr
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

try:
    AH(PD(Context(name=sys.argv[1])), attr=AHAttr(port_num=1))
    print("an address handle without a GID: made")
except PyverbsRDMAError as error:
    print(f"an address handle without a GID: {os.strerror(error.error_code)}")

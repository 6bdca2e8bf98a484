#!/usr/bin/env python3
"""An SDXI function at vfio-pci signals by MSI: through the guest's kernel and QEMU, one message.

sdxi_msi.py FUNCTION: lets the function come to GSV_ERROR (SDXI 4.1.2) with fn_err_intr_en set, which
is message 0, and sees it arrive at an eventfd of the MSI index.
"""
import fcntl
import os
import select
import struct
import sys

VFIO = 0x3B64  # _IO(';', 100)
SET_IOMMU, GROUP_SET_CONTAINER, GET_DEVICE_FD = VFIO + 2, VFIO + 4, VFIO + 6
GET_IRQ_INFO, SET_IRQS = VFIO + 9, VFIO + 10
TYPE1_IOMMU = 1
CONFIG = 7 << 40  # where vfio-pci has its regions
MSI_INDEX = 1
DATA_EVENTFD, ACTION_TRIGGER = 1 << 2, 1 << 5
MSI_CAPABILITY = 5

MMIO_CTL0, MMIO_CTL2, MMIO_STS0 = 0x000, 0x010, 0x100
GSRV_ACTIVE, FN_ERR_INTR_EN, GSV_ERROR = 3, 1 << 4, 5


def open_device(function):
    group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{function}/iommu_group"))
    container = os.open("/dev/vfio/vfio", os.O_RDWR)
    group = os.open(f"/dev/vfio/{group}", os.O_RDWR)
    fcntl.ioctl(group, GROUP_SET_CONTAINER, struct.pack("i", container))
    fcntl.ioctl(container, SET_IOMMU, TYPE1_IOMMU)
    return fcntl.ioctl(group, GET_DEVICE_FD, bytearray(function.encode() + b"\0"))


def read32(device, at):
    return struct.unpack("<I", os.pread(device, 4, at))[0]


def write32(device, at, value):
    os.pwrite(device, struct.pack("<I", value), at)


def message_control(device):
    at = read32(device, CONFIG + 0x34) & 0xFC
    while at:
        header = read32(device, CONFIG + at)
        if header & 0xFF == MSI_CAPABILITY:
            return header >> 16
        at = header >> 8 & 0xFC
    sys.exit("no MSI capability")


def main():
    device = open_device(sys.argv[1])
    info = bytearray(struct.pack("IIII", 16, 0, MSI_INDEX, 0))
    fcntl.ioctl(device, GET_IRQ_INFO, info)
    vectors = struct.unpack("IIII", info)[3]
    print(f"{vectors} MSI vectors, Message Control {message_control(device):#06x}")
    if vectors != 32:
        sys.exit("not 32 MSI vectors")

    event = os.eventfd(0, os.EFD_NONBLOCK)
    fcntl.ioctl(device, SET_IRQS, struct.pack("IIIIIi", 24, DATA_EVENTFD | ACTION_TRIGGER,
                                              MSI_INDEX, 0, 1, event))
    write32(device, CONFIG + 4, 0x0006)  # memory space, bus master

    # A max_buffer above the capability: INIT ends in GSV_ERROR.
    write32(device, MMIO_CTL2, read32(device, MMIO_CTL2) | 0xF)
    write32(device, MMIO_CTL0, GSRV_ACTIVE | FN_ERR_INTR_EN)
    if not select.select([event], [], [], 60)[0]:
        sys.exit(f"no interrupt; MMIO_STS0 {read32(device, MMIO_STS0):#x}")
    count = os.eventfd_read(event)
    state = read32(device, MMIO_STS0) & 0xF
    print(f"{count} message, fn_gsv {state}")
    sys.exit(0 if count == 1 and state == GSV_ERROR else 1)


main()

//! Receive ring of a packet socket (PACKET_RX_RING): memory into which the kernel copies each packet.
//!
//! Reading takes no system call, and the size is not limited by `net.core.rmem_max`, which only the host's root can
//! raise.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use super::sockets::set_option;
use crate::frame::MTU;

/// Size of a block, which the kernel allocates contiguously, in bytes.
const BLOCK: usize = 1 << 16;
/// Number of blocks: 32 MiB in total.
const BLOCKS: usize = 512;
/// Size of a frame: the ring's header, which takes 80 bytes on a socket without link headers, and a packet.
const FRAME: usize = (80 + MTU).next_multiple_of(libc::TPACKET_ALIGNMENT);
const FRAMES_PER_BLOCK: usize = BLOCK / FRAME;
const FRAMES: usize = BLOCKS * FRAMES_PER_BLOCK;

/// Receive ring of one packet socket.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    next: usize,
}

// SAFETY: in this process only the ring accesses the memory; the kernel's accesses obey each frame's status.
unsafe impl Send for Ring {}

/// Content of a frame of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingEntry {
    /// Packet of this length, copied to the buffer.
    Packet(usize),
    /// Packet that no wire could carry: too long, or without its checksum.
    Rejected,
}

impl Ring {
    /// Allocate and map the ring of a packet socket.
    pub(super) fn map(socket: impl AsFd) -> Result<Self, Errno> {
        let socket = socket.as_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: BLOCKS as libc::c_uint,
            tp_frame_size: FRAME as libc::c_uint,
            tp_frame_nr: FRAMES as libc::c_uint,
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this creates a mapping of the ring's size at an address that the kernel chooses.
        let memory = unsafe {
            let flags = libc::MAP_SHARED;
            libc::mmap(ptr::null_mut(), BLOCK * BLOCKS, protection, flags, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let memory = NonNull::new(memory.cast()).ok_or(Errno::EFAULT)?;
        Ok(Self { memory, next: 0 })
    }

    /// Pop the oldest packet into `buffer`; `None` if the ring is empty.
    pub(super) fn pop(&mut self, buffer: &mut [u8]) -> Option<RingEntry> {
        let frame = self.frame(self.next);
        let status = status(frame).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the frame is owned by this side until its status is reset; it begins with this header and contains as
        // many bytes at its offset as the header says.
        let taken = unsafe {
            let header = frame.cast::<libc::tpacket2_hdr>().read();
            let length = header.tp_len as usize;
            let whole = header.tp_snaplen == header.tp_len && length <= buffer.len();
            if whole && status & libc::TP_STATUS_CSUMNOTREADY == 0 {
                let packet = frame.add(usize::from(header.tp_mac));
                ptr::copy_nonoverlapping(packet.as_ptr(), buffer.as_mut_ptr(), length);
                RingEntry::Packet(length)
            } else {
                RingEntry::Rejected
            }
        };
        self::status(frame).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % FRAMES;
        Some(taken)
    }

    /// Number of packets in the ring.
    pub(super) fn unread(&self) -> u64 {
        let from_next = (0..FRAMES).map(|ahead| self.frame((self.next + ahead) % FRAMES));
        let full = |frame: &NonNull<u8>| {
            status(*frame).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
        };
        from_next.take_while(full).count() as u64
    }

    fn frame(&self, index: usize) -> NonNull<u8> {
        let offset = index / FRAMES_PER_BLOCK * BLOCK + index % FRAMES_PER_BLOCK * FRAME;
        // SAFETY: frames do not cross blocks, and every index is below FRAMES.
        unsafe { self.memory.add(offset) }
    }
}

/// Status of a frame, the first field of its header: owned by the kernel or by this side.
fn status<'f>(frame: NonNull<u8>) -> &'f AtomicU32 {
    // SAFETY: frames are aligned to 16 bytes and live as long as the ring, which outlives every use in its methods.
    unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this ring, and no reference to it is left. A failure would leave the memory
        // mapped until the process ends.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

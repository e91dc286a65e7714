//! Memory that a packet socket shares with the kernel, which puts a copy of each packet there.
//!
//! Reading it takes no system call, and its size is not bounded by `net.core.rmem_max`, which only
//! the host's root can raise.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use super::sockets::set_option;
use crate::frame::MTU;

/// What the kernel allocates at once.
const BLOCK: usize = 1 << 16;
/// 32 MiB in all.
const BLOCKS: usize = 512;
/// Room for a packet behind its header, which takes 80 bytes on a socket without link headers.
const FRAME: usize = (80 + MTU).next_multiple_of(libc::TPACKET_ALIGNMENT);
const FRAMES_PER_BLOCK: usize = BLOCK / FRAME;
const FRAMES: usize = BLOCKS * FRAMES_PER_BLOCK;

/// The ring of one packet socket, read by whoever holds it.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    next: usize,
}

// SAFETY: the memory belongs to the ring alone on this side; the kernel's side follows each frame's
// status.
unsafe impl Send for Ring {}

/// What was in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A packet of this length, now in the buffer.
    Packet(usize),
    /// Something that is not as it would be on the wire: too long, or without its checksum.
    Unfit,
}

impl Ring {
    /// Gives a packet socket its ring.
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
        // SAFETY: a new mapping of the size that the ring was given, where there is room for it.
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

    /// Takes the packet that has waited longest; `None` when there is none.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Option<Taken> {
        let frame = self.frame(self.next);
        let status = status(frame).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the frame is this side's until its status is set back, begins with this header,
        // and holds as many bytes at its offset as the header says.
        let taken = unsafe {
            let header = frame.cast::<libc::tpacket2_hdr>().read();
            let length = header.tp_len as usize;
            let whole = header.tp_snaplen == header.tp_len && length <= buffer.len();
            if whole && status & libc::TP_STATUS_CSUMNOTREADY == 0 {
                let packet = frame.add(usize::from(header.tp_mac));
                ptr::copy_nonoverlapping(packet.as_ptr(), buffer.as_mut_ptr(), length);
                Taken::Packet(length)
            } else {
                Taken::Unfit
            }
        };
        self::status(frame).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % FRAMES;
        Some(taken)
    }

    /// How many packets wait.
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

/// The first field of a frame's header says whose turn it is.
fn status<'f>(frame: NonNull<u8>) -> &'f AtomicU32 {
    // SAFETY: frames are aligned to 16 bytes and live as long as the ring, which outlives every use
    // of this in its methods.
    unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and nothing refers to it any more. Its failure would
        // leave memory mapped until the process ends.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

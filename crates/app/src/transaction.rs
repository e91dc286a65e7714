//! What applications find: one row each, in one table for each kind.

use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;

use crate::Side;

/// Something that was to be done, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transaction {
    /// Which of the flow's connections, counted from 0.
    pub connection: u32,
    /// Which of the flow's transactions, counted from 0.
    pub number: u64,
    /// When it was due; what it took counts from then.
    pub due: Instant,
    /// What the client sent for it.
    pub sent: Bytes,
    /// What the server sent for it.
    pub answered: Bytes,
    /// How long the connection took that was opened for it; `None` where there was one.
    pub connect: Option<Duration>,
    /// Until the first byte of the answer; `None` where none came or none was asked for.
    pub first_byte: Option<Duration>,
    /// Until all of it had been read; `None`: it failed.
    pub took: Option<Duration>,
    /// What its kind of application says of it besides.
    pub detail: Detail,
}

/// What a kind of application says of a transaction beside what all have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Detail {
    /// Nothing.
    None,
    /// Of a web page: how many objects it has beside its document.
    Page {
        /// Their number.
        objects: u32,
    },
    /// Of an object of a web page.
    Object {
        /// Which of the flow's pages it belongs to, counted from 0.
        page: u64,
    },
    /// Of a window of a call.
    Call(CallWindow),
    /// Of a chunk of a film.
    Chunk(ChunkRow),
}

impl Detail {
    /// The table that it belongs to, where that is not the application's first one.
    pub const fn table(&self) -> Option<AppTable> {
        match self {
            Self::Object { .. } => Some(AppTable::Objects),
            Self::None | Self::Page { .. } | Self::Call(_) | Self::Chunk(_) => None,
        }
    }
}

/// One direction of a call over a window of time, as its receiver finds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallWindow {
    /// Which end sent.
    pub sender: Side,
    /// Its audio frames.
    pub audio: Frames,
    /// Its video frames.
    pub video: Frames,
    /// How long the audio packets that arrived took on their way, in the mean; `None` where none did.
    pub delay: Option<Duration>,
    /// The interarrival jitter of audio packets at the window's end (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// What the E-model makes of it, 1 to 4.5.
    pub mos: f64,
}

/// What became of frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frames {
    /// How many were due at the sender.
    pub due: u64,
    /// Of them, those that were whole only after they were to be played.
    pub late: u64,
    /// Of them, those that never were.
    pub lost: u64,
}

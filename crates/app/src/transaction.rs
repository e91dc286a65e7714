//! Results of applications: one row per transaction, in one table for each kind of application.

use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;

use crate::Side;

/// Unit of an application's work (request, page, message, probe, chunk …) and its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transaction {
    /// Number of the flow's connection, counted from 0.
    pub connection: u32,
    /// Number of the transaction within the flow, counted from 0.
    pub number: u64,
    /// Time at which it was due; durations count from here.
    pub due: Instant,
    /// Bytes that the client sent for it.
    pub sent: Bytes,
    /// Bytes that the server sent for it.
    pub answered: Bytes,
    /// Time to open its connection; `None` if it used an open one.
    pub connect: Option<Duration>,
    /// Time to the first byte of the answer; `None` if none arrived or none was requested.
    pub first_byte: Option<Duration>,
    /// Time until the whole answer had been read; `None` if it failed.
    pub took: Option<Duration>,
    /// Fields that only its kind of application has.
    pub detail: Detail,
}

/// Fields of a transaction that only one kind of application has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Detail {
    /// No fields beyond the common ones.
    None,
    /// Web page, with the number of its objects.
    Page {
        /// Number of objects in addition to the document.
        objects: u32,
    },
    /// Object of a web page (or its document).
    Object {
        /// Number of the page within the flow, counted from 0.
        page: u64,
    },
    /// Measurement window of a call.
    Call(CallWindow),
    /// Chunk of a film.
    Chunk(ChunkRow),
}

impl Detail {
    /// Table that this detail belongs to, if that is not the application's main one.
    pub const fn table(&self) -> Option<AppTable> {
        match self {
            Self::Object { .. } => Some(AppTable::Objects),
            Self::None | Self::Page { .. } | Self::Call(_) | Self::Chunk(_) => None,
        }
    }
}

/// Measurements of one direction of a call over a window of time, made by its receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallWindow {
    /// End that sent this direction.
    pub sender: Side,
    /// Audio frames of the window.
    pub audio: Frames,
    /// Video frames of the window.
    pub video: Frames,
    /// Mean one-way delay of the audio packets that arrived; `None` if none did.
    pub delay: Option<Duration>,
    /// Interarrival jitter of the audio packets at the window's end (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// Mean opinion score of the E-model (ITU-T G.107), 1 to 4.5.
    pub mos: f64,
}

/// Outcome of media frames at the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frames {
    /// Number of frames due at the sender.
    pub due: u64,
    /// Number of these that were complete only after their playout time.
    pub late: u64,
    /// Number of these that never were complete.
    pub lost: u64,
}

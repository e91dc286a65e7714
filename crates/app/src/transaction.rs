//! What applications find: one row each, in one table for each kind.

use skyhop_units::{Bytes, Duration, Instant};
use skyhop_video::ChunkRow;

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
    /// Of a chunk of a film.
    Chunk(ChunkRow),
}

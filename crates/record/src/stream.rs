//! Pieces of a run over a pipe or socket: a length in four bytes, little endian, then JSON.

use std::io::{self, Write};

use serde::{Serialize, de::DeserializeOwned};
use skyhop_files::FileError;

use crate::{Piece, Sink};

/// Writes one message.
///
/// # Errors
/// The other end is gone, or the message is larger than 4 GB.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&json)
}

/// Passes pieces on as messages, to whoever reads them with a [`PieceReader`].
#[derive(Debug)]
pub struct StreamSink<W> {
    to: W,
}

impl<W: Write> StreamSink<W> {
    /// One that writes into `to`: a pipe, a socket, a file.
    pub fn new(to: W) -> Self {
        Self { to }
    }
}

impl<W: Write> Sink for StreamSink<W> {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        send(&mut self.to, &piece).map_err(|e| FileError::Stream { reason: e.to_string() })
    }
}

/// Puts messages together from the bytes as they arrive.
#[derive(Debug, Default)]
pub struct PieceReader {
    bytes: Vec<u8>,
}

impl PieceReader {
    /// Takes bytes in the order of their arrival.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, once it is complete.
    ///
    /// # Errors
    /// The bytes are not what [`send`] writes.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        let Some(json) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(json)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}

//! Messages with a run's pieces over a pipe or socket. A message is its length in four bytes,
//! little endian, then JSON.

use std::io::{self, Write};

use serde::{Serialize, de::DeserializeOwned};
use skyhop_files::FileError;

use crate::{Piece, Sink};

/// Write one message.
///
/// # Errors
/// The other end has closed, or the message is larger than 4 GB.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&json)
}

/// Sink that writes pieces as messages, for a [`PieceReader`] at the other end.
#[derive(Debug)]
pub struct StreamSink<W> {
    to: W,
}

impl<W: Write> StreamSink<W> {
    /// Create a sink that writes into `to`: a pipe, a socket, a file.
    pub fn new(to: W) -> Self {
        Self { to }
    }
}

impl<W: Write> Sink for StreamSink<W> {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        send(&mut self.to, &piece).map_err(|e| FileError::Stream { reason: e.to_string() })
    }
}

/// Decoder of messages from bytes that arrive in parts of any size.
#[derive(Debug, Default)]
pub struct PieceReader {
    bytes: Vec<u8>,
}

impl PieceReader {
    /// Append bytes in the order of their arrival.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Return the next message, once it is complete.
    ///
    /// # Errors
    /// The bytes were not written by [`send`].
    pub fn next_message<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        let Some(json) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(json)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}

//! Cursor over consecutive pieces of time, which only moves forward.

use skyhop_units::Instant;

use crate::{DelayPiece, Piece};

/// A value that holds from a time until the next one begins.
pub(crate) trait Begins {
    fn begins(&self) -> Instant;
}

/// Consecutive pieces and the current one; a lookup within the current piece is a single comparison.
#[derive(Debug)]
pub(crate) struct Timeline<T> {
    pieces: Box<[T]>,
    index: usize,
    current: T,
    until: Instant,
}

impl<T: Begins + Copy> Timeline<T> {
    /// Create a cursor over `pieces`, which are ordered, not empty, and begin at [`Instant::START`].
    pub(crate) fn new(pieces: Vec<T>) -> Self {
        let until = pieces.get(1).map_or(Instant::NEVER, T::begins);
        Self { current: pieces[0], pieces: pieces.into(), index: 0, until }
    }

    /// Move to the piece that holds at `at`. `at` must not decrease from call to call.
    #[inline]
    pub(crate) fn seek(&mut self, at: Instant) -> &T {
        if at >= self.until {
            self.move_to(at);
        }
        &self.current
    }

    fn move_to(&mut self, at: Instant) {
        while at >= self.until && self.index + 1 < self.pieces.len() {
            self.index += 1;
            self.until = self.next().map_or(Instant::NEVER, T::begins);
        }
        self.current = self.pieces[self.index];
    }

    /// Piece found by the last `seek`.
    #[inline]
    pub(crate) fn current(&self) -> &T {
        &self.current
    }

    /// Piece after the current one.
    pub(crate) fn next(&self) -> Option<&T> {
        self.pieces.get(self.index + 1)
    }

    /// End of the current piece; [`Instant::NEVER`] for the last one.
    #[inline]
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Index of the current piece, counted from 0.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn pieces(&self) -> &[T] {
        &self.pieces
    }
}

impl<T> Begins for Piece<T> {
    fn begins(&self) -> Instant {
        self.from
    }
}

impl Begins for DelayPiece {
    fn begins(&self) -> Instant {
        self.from
    }
}

/// Index of the piece that holds at `at`, found by binary search.
pub(crate) fn index_at<T: Begins>(pieces: &[T], at: Instant) -> usize {
    pieces.partition_point(|piece| piece.begins() <= at).saturating_sub(1)
}

//! A cursor over pieces of time that only moves forward.

use skyhop_units::Instant;

use crate::{DelayPiece, Piece};

/// Something that holds from a moment until the next of its kind begins.
pub(crate) trait Begins {
    fn begins(&self) -> Instant;
}

/// Consecutive pieces and the one that holds now; looking it up costs nothing while it lasts.
#[derive(Debug)]
pub(crate) struct Timeline<T> {
    pieces: Box<[T]>,
    index: usize,
    current: T,
    until: Instant,
}

impl<T: Begins + Copy> Timeline<T> {
    /// `pieces` is ordered, not empty, and begins at [`Instant::START`].
    pub(crate) fn new(pieces: Vec<T>) -> Self {
        let until = pieces.get(1).map_or(Instant::NEVER, T::begins);
        Self { current: pieces[0], pieces: pieces.into(), index: 0, until }
    }

    /// Moves to the piece that holds at `at`, which is not before any earlier `at`.
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

    /// The piece of the last `seek`.
    #[inline]
    pub(crate) fn current(&self) -> &T {
        &self.current
    }

    /// The piece after it.
    pub(crate) fn next(&self) -> Option<&T> {
        self.pieces.get(self.index + 1)
    }

    /// When the piece of the last `seek` ends; [`Instant::NEVER`] for the last one.
    #[inline]
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// The place of that piece, counted from 0.
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

/// The place of the piece that holds at `at`, found without a cursor.
pub(crate) fn index_at<T: Begins>(pieces: &[T], at: Instant) -> usize {
    pieces.partition_point(|piece| piece.begins() <= at).saturating_sub(1)
}

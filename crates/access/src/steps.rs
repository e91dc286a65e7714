//! Functions of time that are constant between two steps.

use skyhop_units::Instant;

/// Value from each time on until the next; before the first time, the value is the neutral one of its use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps(pub(crate) Vec<(Instant, f64)>);

impl Steps {
    /// Times of the steps.
    pub(crate) fn times(&self) -> impl Iterator<Item = Instant> {
        self.0.iter().map(|(at, _)| *at)
    }

    /// Cursor over the steps whose value before the first is `before`.
    pub(crate) fn cursor(&self, before: f64) -> Cursor<'_> {
        Cursor { rest: &self.0, value: before }
    }
}

/// Reader of [`Steps`] that moves forward only.
#[derive(Debug)]
pub(crate) struct Cursor<'s> {
    rest: &'s [(Instant, f64)],
    value: f64,
}

impl Cursor<'_> {
    /// Value at `at`, which does not decrease from call to call.
    pub(crate) fn at(&mut self, at: Instant) -> f64 {
        while let Some(((from, value), rest)) = self.rest.split_first()
            && *from <= at
        {
            (self.value, self.rest) = (*value, rest);
        }
        self.value
    }
}

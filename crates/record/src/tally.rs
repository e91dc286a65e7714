//! Exact statistics of integers. Memory grows with the number of distinct values, not with the number of
//! samples.

use std::mem;

/// Number of values that are collected before they are merged into the counts; to merge each value by
/// itself would take several times as long.
const BATCH: usize = 4096;

/// Number of occurrences of each value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Pairs of value and count, in ascending order of values.
    counts: Vec<(u64, u64)>,
    /// Values not yet merged into the counts.
    pending: Vec<u64>,
    total: u64,
    sum: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, value: u64) {
        self.pending.push(value);
        self.total += 1;
        self.sum += value;
        if self.pending.len() >= BATCH {
            self.count();
        }
    }

    /// Mean of the values, truncated to an integer; `None` if there are none.
    pub(crate) fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.total)
    }

    /// Nearest-rank percentile of the values; `None` if there are none.
    pub(crate) fn percentile(&mut self, percent: u64) -> Option<u64> {
        self.count();
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(value, count)| {
            seen += count;
            (seen >= rank).then_some(*value)
        })
    }

    /// Merge the pending values into the counts.
    fn count(&mut self) {
        self.pending.sort_unstable();
        let mut new = self.pending.drain(..).map(|value| (value, 1)).peekable();
        let mut old = mem::take(&mut self.counts).into_iter().peekable();
        loop {
            let from_old = match (old.peek(), new.peek()) {
                (Some((known, _)), Some((value, _))) => known <= value,
                (known, _) => known.is_some(),
            };
            let Some((value, count)) = (if from_old { old.next() } else { new.next() }) else {
                return;
            };
            match self.counts.last_mut() {
                Some((last, times)) if *last == value => *times += count,
                _ => self.counts.push((value, count)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        values.into_iter().for_each(|value| tally.add(value));
        tally
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(of(1..=100).percentile(95), Some(95));
        assert_eq!(of([7]).percentile(99), Some(7));
        assert_eq!(of([]).percentile(50), None);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut values: Vec<u64> = (0..9777).map(|i| i * i % 313).collect();
        let mut tally = of(values.iter().copied());
        values.sort_unstable();
        for percent in [1, 5, 50, 95, 99, 100] {
            let rank = (values.len() * percent as usize).div_ceil(100);
            assert_eq!(tally.percentile(percent), Some(values[rank - 1]), "{percent}");
        }
        assert_eq!(tally.mean(), Some(values.iter().sum::<u64>() / values.len() as u64));
    }
}

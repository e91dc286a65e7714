//! Exact statistics of whole numbers, in memory that grows with the values there are and not with
//! how often they come.

use std::collections::BTreeMap;

/// How often each value came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<u64, u64>,
    total: u64,
    sum: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, value: u64) {
        *self.counts.entry(value).or_default() += 1;
        self.total += 1;
        self.sum += value;
    }

    /// The mean, cut to a whole number; `None` of nothing.
    pub(crate) fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.total)
    }

    /// The nearest-rank percentile; `None` of nothing.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(value, count)| {
            seen += count;
            (seen >= rank).then_some(*value)
        })
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
        let mut values: Vec<u64> = (0..977).map(|i| i * i % 313).collect();
        let tally = of(values.iter().copied());
        values.sort_unstable();
        for percent in [1, 5, 50, 95, 99, 100] {
            let rank = (values.len() * percent as usize).div_ceil(100);
            assert_eq!(tally.percentile(percent), Some(values[rank - 1]), "{percent}");
        }
        assert_eq!(tally.mean(), Some(values.iter().sum::<u64>() / values.len() as u64));
    }
}

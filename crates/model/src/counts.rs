//! Why packets are lost, and how many are.

use enum_map::{EnumArray, EnumMap};

words! {
    /// Why a packet was lost; each lost packet has exactly one reason.
    LossReason ["reason of a loss"] {
        /// The queue was full, or its discipline chose so.
        Queue = "queue",
        /// At random.
        Loss = "loss",
        /// It reached an outage.
        Outage = "outage",
        /// It was on a hop that was dismantled.
        Dismantled = "dismantled",
        /// A device in front of or behind the link had no room for it (live only).
        Device = "device",
    }
}

/// Lost packets by reason.
pub type Drops = EnumMap<LossReason, u64>;

/// Sums and differences of counts by word.
pub trait Counts: Copy {
    /// All of them together.
    fn total(&self) -> u64;
    /// Those of both.
    fn plus(self, other: Self) -> Self;
    /// Those that have come since `before`.
    fn since(self, before: Self) -> Self;
}

impl<K: EnumArray<u64, Array: Copy> + Copy> Counts for EnumMap<K, u64> {
    fn total(&self) -> u64 {
        self.values().sum()
    }

    fn plus(mut self, other: Self) -> Self {
        self.iter_mut().for_each(|(key, count)| *count += other[key]);
        self
    }

    fn since(mut self, before: Self) -> Self {
        self.iter_mut().for_each(|(key, count)| *count -= before[key]);
        self
    }
}

#[cfg(test)]
mod tests {
    use enum_map::enum_map;

    use super::*;

    #[test]
    fn counts_add_and_subtract_by_reason() {
        let first: Drops = enum_map! { LossReason::Queue => 3, LossReason::Outage => 1, _ => 0 };
        let later: Drops = enum_map! { LossReason::Queue => 5, LossReason::Device => 2, _ => 1 };
        assert_eq!(later.plus(first).since(later), first);
        assert_eq!((first.total(), later.total()), (4, 10));
    }

    #[test]
    fn counts_are_written_by_the_reasons_names_in_their_order() {
        let json = serde_json::to_string(&Drops::default()).unwrap();
        assert_eq!(json, r#"{"queue":0,"loss":0,"outage":0,"dismantled":0,"device":0}"#);
    }
}

//! Reasons of packet losses, and counts by a reason or another enum.

use enum_map::{EnumArray, EnumMap};

words! {
    /// Reason why a packet was lost; each lost packet has exactly one.
    LossReason ["reason of a loss"] {
        /// The queue was full, or its discipline dropped the packet.
        Queue = "queue",
        /// Random loss on the link.
        Loss = "loss",
        /// An outage of the link.
        Outage = "outage",
        /// The hop that the packet was on was dismantled.
        Dismantled = "dismantled",
        /// A device before or behind the link had no room for it (live only).
        Device = "device",
    }
}

/// Number of lost packets, by reason.
pub type Drops = EnumMap<LossReason, u64>;

/// Arithmetic on counts that an enum indexes.
pub trait Counts: Copy {
    /// Sum of all counts.
    fn total(&self) -> u64;
    /// Element-wise sum of the counts.
    fn plus(self, other: Self) -> Self;
    /// Element-wise difference to the earlier counts `before`.
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

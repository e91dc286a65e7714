//! Acknowledgements that a later one makes superfluous (`cake_ack_filter`): where the way back is slow, they would fill it.

use std::cell::Cell;
use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Queued;

/// Which acknowledgements go when one comes that says more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AckFilter {
    /// None.
    #[default]
    Off,
    /// The first of a connection's, once two of them are superfluous.
    On,
    /// The same, and one alone where it is the one before.
    Aggressive,
}

/// What a link carries, where it may hold TCP segments.
pub trait CarriesTcp {
    /// What its TCP header says; `None` where it has none, or acknowledges nothing, or opens a connection (SYN).
    fn tcp(&self) -> Option<TcpFacts>;
}

impl<P: CarriesTcp + Copy> CarriesTcp for Cell<P> {
    fn tcp(&self) -> Option<TcpFacts> {
        self.get().tcp()
    }
}

/// How the queue learns it; a function, so that payloads need no bounds.
pub(crate) type ReadTcp<P> = fn(&P) -> Option<TcpFacts>;

/// What a TCP header says of what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFacts {
    /// The same for all packets of a connection that go the same way.
    pub connection: u64,
    /// Up to where everything has arrived.
    pub acknowledged: u32,
    /// Whether nothing but that stands in it: no data, no other flags than ACK, ECE and CWR, no unusual options.
    pub is_pure: bool,
    /// ECE and CWR, which may not be lost as they change.
    pub ecn_flags: u8,
    /// TSval and TSecr.
    pub timestamps: Option<[u32; 2]>,
    /// What has arrived beyond: from … until, as many as there are.
    pub sacks: [Option<[u32; 2]>; 4],
}

impl AckFilter {
    /// Which of the packets before the last is superfluous by it: its number in the line.
    pub(super) fn superfluous<P>(
        self,
        waiting: &VecDeque<Queued<P>>,
        read_tcp: ReadTcp<P>,
    ) -> Option<usize> {
        let last = waiting.len().checked_sub(1).filter(|last| *last > 0)?;
        let read = |number: usize| read_tcp(&waiting.get(number)?.packet.payload);
        let new = read(last)?;
        // The first that may go, and its flags.
        let mut eligible: Option<(usize, u8)> = None;
        let mut found = 0;
        for number in 0..last {
            let Some(old) = read(number).filter(|old| old.connection == new.connection) else {
                continue;
            };
            if eligible.is_some_and(|(_, flags)| flags != old.ecn_flags) {
                // It told of a change, or of its end.
                (eligible, found) = (None, found - 1);
            }
            if !new.says_more_than(&old) {
                continue;
            }
            eligible = eligible.or(Some((number, old.ecn_flags)));
            found += 1;
            if found > 1 {
                return eligible.map(|(first, _)| first);
            }
        }
        let (first, flags) = eligible?;
        let is_next = self == Self::Aggressive && first + 1 == last && flags == new.ecn_flags;
        is_next.then_some(first)
    }
}

impl TcpFacts {
    /// Whether `old`, of the same connection, can go for it.
    fn says_more_than(&self, old: &Self) -> bool {
        let [older, newer] = [old, self].map(|facts| facts.timestamps.unwrap_or([0; 2]));
        let turns_back = old.timestamps.is_some()
            && (is_after(older[0], newer[0]) || is_after(older[1], newer[1]));
        if !old.is_pure || turns_back || is_after(old.acknowledged, self.acknowledged) {
            return false;
        }
        match old.covered_by(self) {
            Covered::Not => false,
            Covered::Same => old.acknowledged != self.acknowledged,
            Covered::More => true,
        }
    }

    /// `cake_tcph_sack_compare`
    fn covered_by(&self, other: &Self) -> Covered {
        let (ours, others) = (self.sacks.iter().flatten(), other.sacks.iter().flatten());
        match (ours.clone().count(), others.clone().count()) {
            (0, 0) => return Covered::Same,
            (0, _) => return Covered::More,
            (_, 0) => return Covered::Not,
            _ => {}
        }
        let is_held = |[from, until]: &[u32; 2]| {
            // What was doubled (D-SACK) is told once.
            !is_after(self.acknowledged, *from)
                && others.clone().any(|[a, b]| !is_after(*a, *from) && !is_after(*until, *b))
        };
        if !ours.clone().all(is_held) {
            return Covered::Not;
        }
        let length = |blocks: &mut dyn Iterator<Item = &[u32; 2]>| -> u64 {
            blocks.map(|[from, until]| u64::from(until.wrapping_sub(*from))).sum()
        };
        match length(&mut others.clone()) > length(&mut ours.clone()) {
            true => Covered::More,
            false => Covered::Same,
        }
    }
}

/// What another acknowledgement says of the blocks that this one names.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Covered {
    /// Not all of them.
    Not,
    Same,
    /// All of them, and more.
    More,
}

/// Whether `a` is after `b`, as sequence numbers are that begin again at 0.
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[cfg(test)]
mod tests {
    use skyhop_units::{Bytes, Instant};

    use super::*;
    use crate::Packet;

    fn ack(acknowledged: u32) -> TcpFacts {
        TcpFacts {
            connection: 1,
            acknowledged,
            is_pure: true,
            ecn_flags: 0,
            timestamps: Some([acknowledged, acknowledged]),
            sacks: [None; 4],
        }
    }

    fn sacking(acknowledged: u32, blocks: &[[u32; 2]]) -> TcpFacts {
        let mut facts = ack(acknowledged);
        facts.sacks.iter_mut().zip(blocks).for_each(|(place, block)| *place = Some(*block));
        facts
    }

    /// What goes with the filter on, and with the aggressive one.
    fn goes(line: &[TcpFacts]) -> [Option<usize>; 2] {
        let queued = |facts: &TcpFacts| Queued {
            since: Instant::START,
            packet: Packet::new(Bytes::new(66), *facts),
        };
        let waiting: VecDeque<Queued<TcpFacts>> = line.iter().map(queued).collect();
        [AckFilter::On, AckFilter::Aggressive]
            .map(|filter| filter.superfluous(&waiting, |facts| Some(*facts)))
    }

    #[test]
    fn the_first_of_two_that_say_less_goes_and_one_alone_where_it_is_the_last() {
        assert_eq!(goes(&[ack(1)]), [None, None]);
        assert_eq!(goes(&[ack(1), ack(2)]), [None, Some(0)]);
        assert_eq!(goes(&[ack(1), ack(2), ack(3)]), [Some(0), Some(0)]);
        let other = TcpFacts { connection: 2, ..ack(5) };
        assert_eq!(goes(&[ack(1), other, ack(2)]), [None, None]);
        assert_eq!(goes(&[ack(1), other, ack(2), ack(3)]), [Some(0), Some(0)]);
    }

    #[test]
    fn what_says_as_much_or_more_or_something_else_stays() {
        assert_eq!(goes(&[ack(7), ack(7), ack(7)]), [None, None], "duplicates tell of a loss");
        assert_eq!(goes(&[ack(8), ack(9), ack(7)]), [None, None]);
        let data = TcpFacts { is_pure: false, ..ack(1) };
        assert_eq!(goes(&[data, data, ack(7)]), [None, None]);
        assert_eq!(goes(&[ack(1), ack(2), TcpFacts { is_pure: false, ..ack(7) }])[0], Some(0));
        let older = TcpFacts { timestamps: Some([1, 1]), ..ack(9) };
        assert_eq!(goes(&[ack(7), ack(8), older]), [None, None], "time does not go back");
        let around = [ack(u32::MAX - 1), ack(u32::MAX), ack(3)];
        assert_eq!(goes(&around), [Some(0), Some(0)], "numbers begin again");
    }

    #[test]
    fn blocks_go_only_into_greater_ones() {
        let [small, same, large] =
            [[[20, 30]], [[20, 30]], [[20, 40]]].map(|block| sacking(10, &block));
        assert_eq!(goes(&[small, large]), [None, Some(0)]);
        assert_eq!(goes(&[small, same]), [None, None]);
        assert_eq!(goes(&[large, small]), [None, None]);
        assert_eq!(goes(&[small, ack(12)]), [None, None], "the blocks would not be known");
        assert_eq!(goes(&[ack(12), sacking(12, &[[20, 30]])]), [None, Some(0)]);
        let two = sacking(10, &[[50, 60], [20, 30]]);
        assert_eq!(goes(&[small, two]), [None, Some(0)]);
        assert_eq!(goes(&[two, large]), [None, None]);
        let doubled = sacking(10, &[[5, 6]]);
        assert_eq!(goes(&[doubled, sacking(10, &[[5, 6], [20, 30]])]), [None, None], "D-SACK");
    }

    #[test]
    fn changes_of_the_marks_are_told() {
        let marked = |acknowledged| TcpFacts { ecn_flags: 0x40, ..ack(acknowledged) };
        assert_eq!(goes(&[ack(1), marked(2), ack(3)]), [None, None]);
        assert_eq!(goes(&[ack(1), marked(2)]), [None, None]);
        assert_eq!(goes(&[marked(1), marked(2), ack(3)]), [Some(0), Some(0)]);
        assert_eq!(goes(&[ack(1), marked(2), marked(3), ack(4)]), [Some(1), Some(1)]);
    }
}

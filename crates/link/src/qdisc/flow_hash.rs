//! Which of a discipline's queues a packet goes to: by a hash of its connection, as in Linux, so that two may meet in one.

use crate::Packet;
use crate::chance::Chance;

/// A hash drawn at random: who meets whom differs from link to link and from seed to seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowHash {
    key: u64,
}

impl FlowHash {
    pub(super) fn drawn(chance: &mut Chance) -> Self {
        Self { key: chance.bits() }
    }

    /// In place of `skb_get_hash`: the finaliser of SplitMix64, which spreads neighbours over all bits.
    #[inline]
    pub(super) fn of<P>(self, packet: &Packet<P>) -> u32 {
        self.spread(packet.identity())
    }

    /// The same for all connections of a flow.
    #[inline]
    pub(super) fn of_flow(self, flow: u32) -> u32 {
        self.spread(u64::from(flow))
    }

    #[inline]
    fn spread(self, identity: u64) -> u32 {
        let mixed = identity ^ self.key;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    /// One of so many queues: `reciprocal_scale`.
    #[inline]
    pub(super) fn scaled<P>(self, packet: &Packet<P>, queues: usize) -> usize {
        ((u64::from(self.of(packet)) * queues as u64) >> 32) as usize
    }

    /// One of a power of two of queues.
    #[inline]
    pub(super) fn masked<P>(self, packet: &Packet<P>, queues: usize) -> usize {
        self.of(packet) as usize & (queues - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skyhop_model::Ecn;
    use skyhop_units::Bytes;

    use super::*;

    /// How many of 10,000 connections are in each of 1024 queues.
    fn fill(hash: FlowHash, identity: fn(u16) -> (u32, u16)) -> BTreeMap<usize, u32> {
        let mut queues = BTreeMap::new();
        for number in 0..10_000 {
            let (flow, connection) = identity(number);
            let packet = Packet::new(Bytes::new(100), ()).of(flow, Ecn::NotEct).over(connection);
            *queues.entry(hash.scaled(&packet, 1024)).or_insert(0) += 1;
        }
        queues
    }

    #[test]
    fn flows_and_connections_are_spread_as_by_chance() {
        let mut chance = Chance::of_queue(7);
        for identity in [|n: u16| (u32::from(n), 0), |n: u16| (3, n)] {
            let queues = fill(FlowHash::drawn(&mut chance), identity);
            // Chi squared of 1023 degrees of freedom: 1023 +- 45.
            let mean = 10_000.0 / 1024.0;
            let filled: f64 = queues.values().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
            let chi_squared = filled + (1024 - queues.len()) as f64 * mean;
            assert!((850.0..1200.0).contains(&chi_squared), "{chi_squared}");
        }
    }

    #[test]
    fn who_meets_whom_is_drawn() {
        let mut chance = Chance::of_queue(7);
        let pairs = 20_000;
        let meet = |_| {
            let hash = FlowHash::drawn(&mut chance);
            let queue =
                |flow| hash.scaled(&Packet::new(Bytes::new(100), ()).of(flow, Ecn::NotEct), 128);
            queue(0) == queue(1)
        };
        let met = (0..pairs).map(meet).filter(|met| *met).count();
        assert!((100..220).contains(&met), "{met} of {pairs} pairs share one of 128 queues");
    }
}

//! Hash of a packet's connection, by which a discipline chooses its queue. Two connections may share one, as in
//! Linux.

use crate::Packet;
use crate::rng::LinkRng;

/// Hash with a random key: which connections collide differs from link to link and from seed to seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowHash {
    key: u64,
}

impl FlowHash {
    pub(super) fn random(rng: &mut LinkRng) -> Self {
        Self { key: rng.bits() }
    }

    /// Hash of the packet's connection, in place of `skb_get_hash`: SplitMix64's finaliser, which spreads
    /// neighbouring numbers over all bits.
    #[inline]
    pub(super) fn value<P>(self, packet: &Packet<P>) -> u32 {
        self.spread(packet.identity())
    }

    /// Hash of a flow, the same for all its connections.
    #[inline]
    pub(super) fn flow_value(self, flow: u32) -> u32 {
        self.spread(u64::from(flow))
    }

    #[inline]
    fn spread(self, identity: u64) -> u32 {
        let mixed = identity ^ self.key;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    /// Index of one of `queues` queues, by multiplication as in the kernel's `reciprocal_scale`.
    #[inline]
    pub(super) fn scaled<P>(self, packet: &Packet<P>, queues: usize) -> usize {
        ((u64::from(self.value(packet)) * queues as u64) >> 32) as usize
    }

    /// Index of one of `queues` queues by the low bits of the hash; `queues` is a power of two.
    #[inline]
    pub(super) fn masked<P>(self, packet: &Packet<P>, queues: usize) -> usize {
        self.value(packet) as usize & (queues - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skyhop_model::Ecn;
    use skyhop_units::Bytes;

    use super::*;

    /// Number of connections, of 10,000, in each of 1024 queues; empty queues are left out.
    fn fill(hash: FlowHash, identity: fn(u16) -> (u32, u16)) -> BTreeMap<usize, u32> {
        let mut queues = BTreeMap::new();
        for number in 0..10_000 {
            let (flow, connection) = identity(number);
            let packet = Packet::new(Bytes::new(100), ())
                .with_flow(flow, Ecn::NotEct)
                .with_connection(connection);
            *queues.entry(hash.scaled(&packet, 1024)).or_insert(0) += 1;
        }
        queues
    }

    #[test]
    fn flows_and_connections_are_spread_as_by_chance() {
        let mut rng = LinkRng::for_queue(7);
        for identity in [|n: u16| (u32::from(n), 0), |n: u16| (3, n)] {
            let queues = fill(FlowHash::random(&mut rng), identity);
            // Chi squared with 1023 degrees of freedom: 1023 +- 45.
            let mean = 10_000.0 / 1024.0;
            let filled: f64 = queues.values().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
            let chi_squared = filled + (1024 - queues.len()) as f64 * mean;
            assert!((850.0..1200.0).contains(&chi_squared), "{chi_squared}");
        }
    }

    #[test]
    fn which_flows_collide_is_random() {
        let mut rng = LinkRng::for_queue(7);
        let pairs = 20_000;
        let meet = |_| {
            let hash = FlowHash::random(&mut rng);
            let queue = |flow| {
                hash.scaled(&Packet::new(Bytes::new(100), ()).with_flow(flow, Ecn::NotEct), 128)
            };
            queue(0) == queue(1)
        };
        let met = (0..pairs).map(meet).filter(|met| *met).count();
        assert!((100..220).contains(&met), "{met} of {pairs} pairs share one of 128 queues");
    }
}

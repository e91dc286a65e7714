//! Paths seen from their other end.

use std::mem;

use skyhop_model::End;

use crate::trace::{Frame, NODE_FROM, NODE_TO, PathTrace};

impl PathTrace {
    /// Return the same path with its ends exchanged: what was from `from` to `to` is from `to` to `from`.
    #[must_use]
    pub fn mirrored(mut self) -> Self {
        let header = &mut self.header;
        mem::swap(&mut header.from, &mut header.to);
        header.dish = header.dish.map(End::other);
        let (terminal, directed) = (header.dish.unwrap_or_default(), header.directed);
        self.frames.iter_mut().for_each(|frame| frame.mirror(terminal, directed));
        self
    }
}

impl Frame {
    /// Exchange the ends; the new end `terminal` has the hop in which the directions may differ.
    fn mirror(&mut self, terminal: End, directed: bool) {
        self.nodes.reverse();
        for node in &mut self.nodes {
            *node = match *node {
                NODE_FROM => NODE_TO,
                NODE_TO => NODE_FROM,
                other => other,
            };
        }
        let hops = self.hop_delays.len();
        self.hop_delays.reverse();
        if let (Some(there), Some(back)) = (self.delay, self.delay_back) {
            let more_ns = back.as_nanos() as i64 - there.as_nanos() as i64;
            self.add_delays([more_ns, -more_ns], terminal);
        }
        // A rate alone holds in both directions, unless each direction has only its own.
        if directed || self.rate_back.is_some() {
            mem::swap(&mut self.rate, &mut self.rate_back);
        }
        mem::swap(&mut self.loss, &mut self.loss_back);
        for hop in self.events.iter_mut().filter_map(|event| event.hop.as_mut()) {
            *hop = (hops as u16).checked_sub(*hop + 1).unwrap_or(*hop);
        }
    }
}

//! Deficit round robin over queues, with new flows first (RFC 8290 4.1.2 and 4.2).

use std::collections::VecDeque;

use skyhop_units::Bytes;

/// Lists of the queues that may have packets, in the order in which they are served. Each queue is identified
/// by its index.
#[derive(Debug)]
pub(super) struct Rotation {
    quantum: i64,
    turns: Box<[Turn]>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Bytes that the queue may still send before the next queue is served.
    deficit: i64,
    is_listed: bool,
}

impl Rotation {
    /// Create the lists for `queues` queues, each of which sends `quantum` bytes per round.
    pub(super) fn new(queues: usize, quantum: Bytes) -> Self {
        Self {
            quantum: quantum.as_u64() as i64,
            turns: vec![Turn::default(); queues].into(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// List a queue that a packet has joined, as a new flow unless it is already listed.
    #[inline]
    pub(super) fn enlist(&mut self, queue: usize) {
        let turn = &mut self.turns[queue];
        if !turn.is_listed {
            *turn = Turn { deficit: self.quantum, is_listed: true };
            self.new.push_back(queue as u32);
        }
    }

    /// Queue to serve next, after every queue without credit has moved to the old list.
    #[inline]
    pub(super) fn current(&mut self) -> Option<usize> {
        loop {
            let list = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let queue = *list.front()?;
            let turn = &mut self.turns[queue as usize];
            if turn.deficit > 0 {
                return Some(queue as usize);
            }
            turn.deficit += self.quantum;
            list.pop_front();
            self.old.push_back(queue);
        }
    }

    /// Charge a queue for a packet that it sent.
    #[inline]
    pub(super) fn charge(&mut self, queue: usize, wire_size: Bytes) {
        self.turns[queue].deficit -= wire_size.as_u64() as i64;
    }

    /// Remove the current queue, which is empty. An emptied new flow is moved to the old list, so that it
    /// cannot regain priority by emptying its queue (RFC 8290 4.2).
    #[inline]
    pub(super) fn retire_current(&mut self) {
        let is_new = !self.new.is_empty();
        let list = if is_new { &mut self.new } else { &mut self.old };
        let Some(queue) = list.pop_front() else { return };
        if is_new && !self.old.is_empty() {
            self.old.push_back(queue);
        } else {
            self.turns[queue as usize].is_listed = false;
        }
    }

    /// Indices of all queues that may have packets.
    pub(super) fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        self.new.iter().chain(&self.old).map(|queue| *queue as usize)
    }
}

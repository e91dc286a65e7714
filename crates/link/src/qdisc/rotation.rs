//! Whose turn it is: deficit round robin over queues, those of new flows first (RFC 8290 4.1.2 and 4.2).

use std::collections::VecDeque;

use skyhop_units::Bytes;

/// The queues that have something, in the order of their turns. A queue is known by its place.
#[derive(Debug)]
pub(super) struct Rotation {
    quantum: i64,
    turns: Box<[Turn]>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Bytes that it may send before the next has its turn.
    deficit: i64,
    is_listed: bool,
}

impl Rotation {
    /// Of so many queues, each with so many bytes a turn.
    pub(super) fn new(queues: usize, quantum: Bytes) -> Self {
        Self {
            quantum: quantum.as_u64() as i64,
            turns: vec![Turn::default(); queues].into(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// A packet has come into a queue.
    #[inline]
    pub(super) fn join(&mut self, queue: usize) {
        let turn = &mut self.turns[queue];
        if !turn.is_listed {
            *turn = Turn { deficit: self.quantum, is_listed: true };
            self.new.push_back(queue as u32);
        }
    }

    /// The queue whose turn it is.
    #[inline]
    pub(super) fn first(&mut self) -> Option<usize> {
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

    /// That queue has sent a packet.
    #[inline]
    pub(super) fn spend(&mut self, queue: usize, wire_size: Bytes) {
        self.turns[queue].deficit -= wire_size.as_u64() as i64;
    }

    /// The queue whose turn it is has nothing. One that is new still waits for the old ones' turns, lest it begins again
    /// before they had theirs.
    #[inline]
    pub(super) fn pass(&mut self) {
        let is_new = !self.new.is_empty();
        let list = if is_new { &mut self.new } else { &mut self.old };
        let Some(queue) = list.pop_front() else { return };
        if is_new && !self.old.is_empty() {
            self.old.push_back(queue);
        } else {
            self.turns[queue as usize].is_listed = false;
        }
    }

    /// All queues that may have something.
    pub(super) fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        self.new.iter().chain(&self.old).map(|queue| *queue as usize)
    }
}

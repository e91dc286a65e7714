//! Times at which the components of the network must be visited next.

use skyhop_units::Instant;

/// Next visit of each of a fixed number of components, earliest first.
///
/// Each component has exactly one entry, so that the calendar is as small as the network and never
/// holds packets. Ties go to the component with the lower number: the order of visits depends on
/// nothing else.
#[derive(Debug)]
pub struct Calendar {
    /// Tree of the first components (links), which are visited far more often than the many others.
    busy: Tree,
    others: Tree,
    busy_components: usize,
}

impl Calendar {
    /// Create a calendar without visits. Components below `busy` are visited often; `others` is the number of
    /// further components.
    pub fn new(busy: usize, others: usize) -> Self {
        Self { busy: Tree::new(busy), others: Tree::new(others), busy_components: busy }
    }

    /// Component to visit next and the time; `None` if no component has a visit.
    #[inline]
    pub fn next(&self) -> Option<(usize, Instant)> {
        let (busy, other) = (self.busy.earliest(), self.others.earliest());
        if busy <= other {
            (busy < Instant::NEVER).then(|| (self.busy.first(), busy))
        } else {
            Some((self.busy_components + self.others.first(), other))
        }
    }

    /// Set the next visit of a component; `None` means that it needs none.
    #[inline]
    pub fn set(&mut self, component: usize, at: Option<Instant>) {
        let at = at.unwrap_or(Instant::NEVER);
        match component.checked_sub(self.busy_components) {
            None => self.busy.set(component, at),
            Some(other) => self.others.set(other, at),
        }
    }

    /// Set the next visit of a component to `at`, unless it has an earlier one. The time of an end of a flow changes
    /// with nearly every packet, nearly always to a later one. A visit that is too early does no harm, so it need not
    /// be moved.
    #[inline]
    pub fn bring_forward(&mut self, component: usize, at: Instant) {
        let other = component - self.busy_components;
        if at < self.others.at(other) {
            self.others.set(other, at);
        }
    }
}

/// Complete binary tree of minima, its root at 1 and the children of `n` at `2n` and `2n + 1`. A leaf is the next visit
/// of a component, at [`Instant::NEVER`] if it has none; every other node is the earlier one of its children, the left
/// one if both are at the same time.
#[derive(Debug)]
struct Tree {
    nodes: Box<[Visit]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Visit {
    at: Instant,
    component: u32,
}

impl Tree {
    fn new(components: usize) -> Self {
        let leaves = components.next_power_of_two();
        let mut nodes = vec![Visit { at: Instant::NEVER, component: 0 }; 2 * leaves];
        for (node, component) in (leaves..).zip(0..leaves as u32) {
            nodes[node].component = component;
        }
        // While there is no visit, every node is its leftmost leaf.
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Self { nodes: nodes.into() }
    }

    #[inline]
    fn earliest(&self) -> Instant {
        self.nodes[1].at
    }

    /// Lowest-numbered component with the earliest visit.
    #[inline]
    fn first(&self) -> usize {
        self.nodes[1].component as usize
    }

    #[inline]
    fn at(&self, component: usize) -> Instant {
        self.nodes[self.nodes.len() / 2 + component].at
    }

    #[inline]
    fn set(&mut self, component: usize, at: Instant) {
        let mut node = self.nodes.len() / 2 + component;
        if self.nodes[node].at == at {
            return;
        }
        self.nodes[node].at = at;
        while node > 1 {
            let [left, right] = [self.nodes[node & !1], self.nodes[node | 1]];
            let first = if right.at < left.at { right } else { left };
            node /= 2;
            if self.nodes[node] == first {
                return;
            }
            self.nodes[node] = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_component_comes_first_and_ties_go_to_the_lower_number(
            busy in 0_usize..9,
            sets in prop::collection::vec(
                (0_usize..9, prop::option::of(0_u64..20), any::<bool>()),
                1..200,
            )
        ) {
            let mut calendar = Calendar::new(busy, 9 - busy);
            let mut simple = [Instant::NEVER; 9];
            for (component, at, brings_forward) in sets {
                let at = at.map(Instant::from_nanos);
                let time = at.unwrap_or(Instant::NEVER);
                if brings_forward && component >= busy {
                    calendar.bring_forward(component, time);
                    simple[component] = simple[component].min(time);
                } else {
                    calendar.set(component, at);
                    simple[component] = time;
                }
                let first = (0..9).min_by_key(|c| (simple[*c], *c)).filter(|c| {
                    simple[*c] < Instant::NEVER
                });
                prop_assert_eq!(calendar.next(), first.map(|c| (c, simple[c])));
            }
        }
    }
}

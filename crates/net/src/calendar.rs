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

/// Complete binary tree of minima, its root at 1 and the children of `n` at `2n` and `2n + 1`. A leaf holds the next
/// visit of a component, [`Instant::NEVER`] if it has none; every other node holds the earlier one of its children's.
#[derive(Debug)]
struct Tree {
    nodes: Box<[Instant]>,
}

impl Tree {
    fn new(components: usize) -> Self {
        let leaves = components.next_power_of_two();
        Self { nodes: vec![Instant::NEVER; 2 * leaves].into() }
    }

    #[inline]
    fn earliest(&self) -> Instant {
        self.nodes[1]
    }

    /// Lowest-numbered component with the earliest visit.
    #[inline]
    fn first(&self) -> usize {
        let (leaves, earliest) = (self.nodes.len() / 2, self.nodes[1]);
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(self.nodes[2 * node] > earliest);
        }
        node - leaves
    }

    #[inline]
    fn at(&self, component: usize) -> Instant {
        self.nodes[self.nodes.len() / 2 + component]
    }

    #[inline]
    fn set(&mut self, component: usize, at: Instant) {
        let mut node = self.nodes.len() / 2 + component;
        let mut at = at;
        while self.nodes[node] != at {
            self.nodes[node] = at;
            if node == 1 {
                return;
            }
            at = at.min(self.nodes[node ^ 1]);
            node /= 2;
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

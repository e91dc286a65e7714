//! Macro that turns the table of queue disciplines into code.

/// Generate from the table the list of names, an enum over the configurations, an enum over the running
/// disciplines, and the conversions between them.
macro_rules! table {
    ($($variant:ident = $name:literal, $type:ident::$kind:ident($config:ident), $summary:literal;)+) => {
        $(pub use $type::$config;)+

        /// All queue disciplines that scenarios can name.
        pub const QDISCS: &[QdiscEntry] = &[$(QdiscEntry {
            name: $name,
            summary: $summary,
            default: || QueueDiscipline::$variant($config::default()),
        }),+];

        /// A queue discipline with its parameters. In files it is its name, or a table with the name as `kind`
        /// and the parameters that differ from Linux's defaults.
        #[derive(Debug, Clone, PartialEq)]
        pub enum QueueDiscipline {
            $(#[doc = $summary] $variant($config)),+
        }

        impl QueueDiscipline {
            /// Name of the discipline in scenarios.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            /// # Errors
            /// A parameter has an invalid value.
            pub(crate) fn check(&self) -> Result<(), LinkError> {
                let fault = match self { $(Self::$variant(config) => config.fault()),+ };
                fault.map_or(Ok(()), |fault| {
                    Err(LinkError::QdiscParameter { qdisc: self.name(), fault: fault.to_owned() })
                })
            }
        }

        /// Table form of a discipline in files, told apart by `kind`.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        enum Table {
            $(#[doc = $summary] #[serde(rename = $name)] $variant($config)),+
        }

        impl From<Table> for QueueDiscipline {
            fn from(table: Table) -> Self {
                match table { $(Table::$variant(config) => Self::$variant(config)),+ }
            }
        }

        impl From<QueueDiscipline> for Table {
            fn from(qdisc: QueueDiscipline) -> Self {
                match qdisc { $(QueueDiscipline::$variant(config) => Self::$variant(config)),+ }
            }
        }

        /// Any running discipline; an enum rather than a trait object, so that payloads need no bounds.
        #[derive(Debug)]
        pub(crate) enum AnyQdisc<P> {
            $($variant($type::$kind<P>)),+
        }

        impl<P> AnyQdisc<P> {
            /// Create an empty queue; its random numbers come from `seed`.
            pub(crate) fn new(config: &QueueDiscipline, limit: Limit, seed: u64) -> Self {
                match config {
                    $(QueueDiscipline::$variant(config) => {
                        Self::$variant($type::$kind::new(config, limit, seed))
                    })+
                }
            }
        }

        impl<P> Qdisc<P> for AnyQdisc<P> {
            #[inline(always)]
            fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
                match self { $(Self::$variant(qdisc) => qdisc.enqueue(arriving, verdicts)),+ }
            }

            #[inline]
            fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
                match self { $(Self::$variant(qdisc) => qdisc.dequeue(now, verdicts)),+ }
            }

            #[inline]
            fn backlog(&self) -> Backlog {
                match self { $(Self::$variant(qdisc) => qdisc.backlog()),+ }
            }

            fn ready(&self) -> Instant {
                match self { $(Self::$variant(qdisc) => qdisc.ready()),+ }
            }

            fn read_tcp_with(&mut self, read_tcp: ReadTcp<P>) {
                match self { $(Self::$variant(qdisc) => qdisc.read_tcp_with(read_tcp)),+ }
            }

            #[inline]
            fn on_idle(&mut self, now: Instant) {
                match self { $(Self::$variant(qdisc) => qdisc.on_idle(now)),+ }
            }
        }
    };
}

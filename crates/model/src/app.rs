//! What applications leave behind.

words! {
    /// The tables of applications' results, by what they hold a row for.
    AppTable ["table of results"] {
        /// A request and its answer.
        Requests = "requests",
        /// A time of sending between two pauses.
        Bursts = "bursts",
        /// A message of a steady source.
        Messages = "messages",
        /// A web page.
        Pages = "pages",
        /// An object of a web page.
        Objects = "objects",
        /// One direction of a call over a window of time.
        Calls = "calls",
        /// A chunk of a film.
        Chunks = "chunks",
    }
}

words! {
    /// Another player's habits.
    #[derive(Default)]
    PlayerCompat ["compatibility mode"] {
        /// None.
        #[default]
        None = "none",
        /// Those of Pensieve's simulator.
        Pensieve = "pensieve",
    }
}

//! Macro that turns the table of controllers into code.

/// Generate the list of controllers, and an enum over their parameters.
macro_rules! table {
    ($($variant:ident = $name:literal, $file:ident::$config:ident, $summary:literal;)+) => {
        $(pub use $file::$config;)+

        /// All controllers, by name.
        pub const CONTROLLERS: &[ControllerEntry] = &[$(ControllerEntry {
            name: $name,
            summary: $summary,
            default: || ControllerChoice::$variant($config::default()),
        }),+];

        /// Controller with its parameters: in files, either the controller's name, or a table with the
        /// name as `kind` and the parameters whose values differ from the published ones.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ControllerChoice {
            $(#[doc = $summary] $variant($config)),+
        }

        impl ControllerChoice {
            /// Name of the controller, as in files.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            fn parameters(&self) -> &dyn Parameters {
                match self { $(Self::$variant(config) => config),+ }
            }
        }

        /// Table form of a controller in files.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        #[schemars(rename = "ControllerTable")]
        enum Table {
            $(#[doc = $summary] #[serde(rename = $name)] $variant($config)),+
        }

        impl From<Table> for ControllerChoice {
            fn from(table: Table) -> Self {
                match table { $(Table::$variant(config) => Self::$variant(config)),+ }
            }
        }

        impl From<ControllerChoice> for Table {
            fn from(choice: ControllerChoice) -> Self {
                match choice { $(ControllerChoice::$variant(config) => Self::$variant(config)),+ }
            }
        }
    };
}

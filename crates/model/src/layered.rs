//! Keys that may be given or not, in several places of which one wins, and the values that they stand for.

/// Defines keys that may be given or not, and the values that count once all is said: the keys' own, or
/// else the defaults that stand here, which may name keys above them. A value that may be given in parts has the
/// keys for that in brackets: a type with `or` and `values` of its own.
#[macro_export]
macro_rules! layered {
    ($(#[$meta:meta])* $keys:ident => $(#[$values_meta:meta])* $values:ident {
        $($(#[$doc:meta])* $key:ident: $type:ty $([$parts:ty])? = $default:expr,)+
    }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(deny_unknown_fields)]
        pub struct $keys {
            $($(#[$doc])* pub $key: Option<$crate::layered!(@keys $type $(, $parts)?)>,)+
        }

        #[doc = concat!("The values that [`", stringify!($keys), "`] stand for.")]
        $(#[$values_meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(default)]
        pub struct $values { $($(#[$doc])* pub $key: $type,)+ }

        impl $keys {
            /// These keys, and those of `others` that are not among them.
            pub fn or(self, others: Self) -> Self {
                Self { $($key: $crate::layered!(@or self.$key, others.$key $(, $parts)?),)+ }
            }

            /// What they stand for, defaults included.
            pub fn values(&self) -> $values {
                $(let $key = $crate::layered!(@value self.$key.clone(), $default $(, $parts)?);)+
                $values { $($key,)+ }
            }
        }

        impl Default for $values {
            fn default() -> Self {
                $keys::default().values()
            }
        }
    };
    (@keys $type:ty) => { $type };
    (@keys $type:ty, $parts:ty) => { $parts };
    (@or $one:expr, $other:expr) => { $one.or($other) };
    (@or $one:expr, $other:expr, $parts:ty) => {
        match ($one, $other) {
            (Some(one), Some(other)) => Some(<$parts>::or(one, other)),
            (one, other) => one.or(other),
        }
    };
    (@value $given:expr, $default:expr) => { $given.unwrap_or_else(|| $default) };
    (@value $given:expr, $default:expr, $parts:ty) => {
        <$parts>::values($given.unwrap_or_default(), $default)
    };
}

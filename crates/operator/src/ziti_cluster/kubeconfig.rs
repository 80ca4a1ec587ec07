//! What a kubeconfig says, where it says everything itself. Only
//! [`super::credential`] uses this module.
//!
//! A kubeconfig is a program as much as it is data: `exec` and `auth-provider` run
//! something, and paths read files. Both would happen in the operator, with its
//! rights, by the word of whoever may write a Secret. So they are refused, and so
//! is what verifies nothing.

use super::credential::Access;
use api::reasons;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use plan::edge_router::Problem;

const ADVICE: &str = "`ziti-operator cluster-credential` makes a credential that works";

/// The access that a context of a kubeconfig gives. `source` names the Secret and
/// the key in messages; no message quotes the text.
pub(super) fn access(text: &str, context: Option<&str>, source: &str) -> Result<Access, Problem> {
    let invalid = |what: &str| {
        Problem::new(
            reasons::SOURCE_INVALID,
            format!("{source} {what}: {ADVICE}"),
        )
    };
    let parsed = Kubeconfig::from_yaml(text).map_err(|_| invalid("holds no kubeconfig"))?;
    let name = context
        .or(parsed.current_context.as_deref())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            invalid("has no current context; name one in spec.credential.kubeconfig.context")
        })?;
    let context = parsed
        .contexts
        .iter()
        .find(|known| known.name == name)
        .and_then(|known| known.context.as_ref())
        .ok_or_else(|| invalid(&format!("has no context {name:?}")))?;
    let cluster = parsed
        .clusters
        .iter()
        .find(|known| known.name == context.cluster)
        .and_then(|known| known.cluster.as_ref())
        .ok_or_else(|| invalid(&format!("has no cluster {:?}", context.cluster)))?;
    let user = context.user.as_deref().unwrap_or_default();
    let user = parsed
        .auth_infos
        .iter()
        .find(|known| known.name == user)
        .and_then(|known| known.auth_info.as_ref())
        .ok_or_else(|| invalid(&format!("has no user {user:?}")))?;
    if let Some(what) = refused(cluster, user) {
        let message = format!("{source} {what}, which is refused: {ADVICE}");
        return Err(Problem::new(reasons::CREDENTIAL_REFUSED, message));
    }
    Ok(Access {
        server: cluster.server.clone(),
        certificate_authority: cluster.certificate_authority_data.clone(),
        tls_server_name: cluster.tls_server_name.clone(),
        proxy: cluster.proxy_url.clone(),
        user: user.clone(),
    })
}

/// Why it is not used, if it is not.
fn refused(cluster: &Cluster, user: &AuthInfo) -> Option<&'static str> {
    let rows = [
        (user.exec.is_some(), "runs a program to log in (exec)"),
        (user.auth_provider.is_some(), "logs in by an auth-provider"),
        (user.token_file.is_some(), "reads a file (tokenFile)"),
        (
            user.client_certificate.is_some(),
            "reads a file (client-certificate)",
        ),
        (user.client_key.is_some(), "reads a file (client-key)"),
        (
            cluster.certificate_authority.is_some(),
            "reads a file (certificate-authority)",
        ),
        (
            cluster.insecure_skip_tls_verify == Some(true),
            "verifies no certificate (insecure-skip-tls-verify)",
        ),
        (
            user.username.is_some() || user.password.is_some(),
            "logs in by a password, which no API server takes any more",
        ),
    ];
    rows.into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    /// A kubeconfig of one cluster, one user and one context.
    fn text(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
             clusters:\n- name: k\n  cluster: {{server: 'https://far:6443'{cluster}}}\n\
             users:\n- name: u\n  user: {{{user}}}\n"
        )
    }

    #[test]
    fn one_that_says_everything_itself_is_taken() {
        let cluster = ", certificate-authority-data: Y2E=, tls-server-name: kubernetes, proxy-url: 'http://p:3128'";
        let access = access(&text(cluster, "token: secret"), None, "it").unwrap();
        assert_eq!(access.server.as_deref(), Some("https://far:6443"));
        assert_eq!(access.certificate_authority.as_deref(), Some("Y2E="));
        assert_eq!(access.tls_server_name.as_deref(), Some("kubernetes"));
        assert_eq!(access.proxy.as_deref(), Some("http://p:3128"));
        assert_eq!(access.user.token.unwrap().expose_secret(), "secret");
    }

    #[test]
    fn what_would_run_here_or_read_here_or_trust_blindly_is_refused_by_its_name() {
        let exec =
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, id]}";
        let rows = [
            ("", exec, "(exec)"),
            ("", "auth-provider: {name: gcp}", "auth-provider"),
            ("", "tokenFile: /run/token", "(tokenFile)"),
            ("", "client-certificate: /a.crt", "(client-certificate)"),
            ("", "client-key: /a.key", "(client-key)"),
            (
                ", certificate-authority: /ca.crt",
                "token: t",
                "(certificate-authority)",
            ),
            (
                ", insecure-skip-tls-verify: true",
                "token: t",
                "(insecure-skip-tls-verify)",
            ),
            ("", "username: a, password: b", "password"),
        ];
        for (cluster, user, word) in rows {
            let problem = access(&text(cluster, user), None, "key k of Secret s").unwrap_err();
            assert_eq!(problem.reason, reasons::CREDENTIAL_REFUSED, "{word}");
            assert!(problem.message.contains(word), "{}", problem.message);
            assert!(problem.message.starts_with("key k of Secret s "));
        }
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_of_the_text_is_quoted() {
        let good = text("", "token: very-secret");
        let rows = [
            (good.clone(), Some("other"), "has no context \"other\""),
            (
                good.replace("cluster: k,", "cluster: x,"),
                None,
                "has no cluster \"x\"",
            ),
            (
                good.replace("user: u}", "user: y}"),
                None,
                "has no user \"y\"",
            ),
            (
                good.replace("current-context: c\n", ""),
                None,
                "has no current context",
            ),
            (
                "token: very-secret\n: [".to_owned(),
                None,
                "holds no kubeconfig",
            ),
            ("very-secret".to_owned(), None, "holds no kubeconfig"),
        ];
        for (text, context, words) in rows {
            let problem = access(&text, context, "it").unwrap_err();
            assert_eq!(problem.reason, reasons::SOURCE_INVALID);
            assert!(problem.message.contains(words), "{}", problem.message);
            assert!(!problem.message.contains("very-secret"));
        }
    }
}

# The operator's image, for those who have a container engine. `cargo xtask demo` makes the same
# layout without one (crates/testbed/src/image): both programs, the libraries they link, a user,
# and nothing to write to.
FROM docker.io/library/rust:1.95-bookworm AS build
# aws-lc-rs compiles C.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends cmake \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package ziti-operator --package ziti-agent
RUN set -eu; \
    mkdir -p /image/usr/local/bin /image/etc; \
    install -d -m 1777 /image/tmp; \
    for program in ziti-operator ziti-agent; do \
      install -m 0755 "target/release/$program" /image/usr/local/bin/; \
      ldd "target/release/$program" | grep -o '/[^ ]*' | xargs cp --dereference --parents --target-directory=/image; \
    done; \
    printf 'root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n' > /image/etc/passwd; \
    printf 'root:x:0:\nnonroot:x:65532:\n' > /image/etc/group; \
    printf 'passwd: files\ngroup: files\nhosts: files dns\n' > /image/etc/nsswitch.conf

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/ziti-operator"]

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/kvferry/kvferry/runtime/blame"
)

// repository is a place in a registry.
type repository struct{ repo *remote.Repository }

// maxIndex bounds lists that a registry or a layout answers with.
const maxIndex = 1 << 20

func openRepository(ref Reference, opt Options) (*repository, error) {
	repo, err := remote.NewRepository(ref.Host + "/" + ref.Repository)
	if err != nil {
		return nil, failed(ref, "reference", blame.Operator, err)
	}
	repo.PlainHTTP = opt.PlainHTTP || ref.loopback()
	repo.MaxMetadataBytes = maxIndex
	repo.ReferrerListMaxPages = 4
	host := ref.Host
	g := &guard{base: opt.Transport, scheme: "https", host: host, tokens: opt.TokenHosts}
	if g.base == nil {
		g.base = http.DefaultTransport
	}
	if repo.PlainHTTP {
		g.scheme = "http"
	}
	repo.Client = &auth.Client{
		Client: &http.Client{Transport: g, CheckRedirect: g.redirect},
		Cache:  auth.NewCache(),
		Credential: func(ctx context.Context, asked string) (auth.Credential, error) {
			if opt.Credential == nil || asked != repo.Reference.Host() {
				return auth.EmptyCredential, nil
			}
			c, err := opt.Credential(ctx, host)
			return auth.Credential{Username: c.Username, Password: c.Password, RefreshToken: c.Refresh, AccessToken: c.Token}, err
		},
	}
	return &repository{repo}, nil
}

// DockerCredential answers from the credentials that "docker login" and "oras
// login" keep: $DOCKER_CONFIG/config.json and the helpers that it names, which
// are programs that it runs.
func DockerCredential() (func(ctx context.Context, host string) (Credential, error), error) {
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, blame.On(blame.Operator, fmt.Errorf("read registry credentials: %w", err))
	}
	ask := credentials.Credential(store)
	return func(ctx context.Context, host string) (Credential, error) {
		c, err := ask(ctx, host)
		return Credential{c.Username, c.Password, c.RefreshToken, c.AccessToken}, err
	}, nil
}

// known turns errors of the registry's client into ours where we have one.
func known(err error) error {
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

func (r *repository) resolve(ctx context.Context, ref Reference) (v1.Descriptor, error) {
	name := ref.Tag
	if ref.Pinned() {
		name = ref.Digest.String()
	}
	d, err := r.repo.Resolve(ctx, name)
	return d, known(err)
}

func (r *repository) fetch(ctx context.Context, d descriptor) ([]byte, error) {
	b, err := content.FetchAll(ctx, r.repo, d.oci())
	if err != nil {
		return nil, known(err)
	}
	return verified(b, d)
}

// enough ends a listing.
var errEnough = errors.New("enough")

// maxListed bounds how many referrers of any type are listed.
const maxListed = 1024

// referrers lists what may be signatures: those whose type says so come first,
// then those of which the registry says another type. Some registries show the
// type of a manifest's config in place of its own, so the manifests decide.
func (r *repository) referrers(ctx context.Context, d descriptor) ([]v1.Descriptor, error) {
	var ours, others []v1.Descriptor
	err := r.repo.Referrers(ctx, d.oci(), "", func(page []v1.Descriptor) error {
		for _, p := range page {
			if len(ours) == MaxSignatures || len(ours)+len(others) == maxListed {
				return errEnough
			}
			if p.ArtifactType == SignatureType {
				ours = append(ours, p)
			} else {
				others = append(others, p)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, errdef.ErrNotFound) {
		return nil, err
	}
	out := append(ours, others...)
	return out[:min(len(out), MaxSignatures)], nil
}

func (r *repository) push(ctx context.Context, d descriptor, b []byte, tag string) error {
	if tag != "" {
		return known(r.repo.PushReference(ctx, d.oci(), bytes.NewReader(b), tag))
	}
	if ok, err := r.repo.Exists(ctx, d.oci()); err == nil && ok {
		return nil
	}
	err := r.repo.Push(ctx, d.oci(), bytes.NewReader(b))
	if errors.Is(err, errdef.ErrAlreadyExists) {
		return nil
	}
	return known(err)
}

package digest_test

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/layout"
)

// order reads the items of an order.
func order(t testing.TB, text string) []layout.Entry {
	t.Helper()
	var items []layout.Item
	for word := range strings.FieldsSeq(text) {
		it, err := layout.ParseItem(word)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, it)
	}
	return layout.Items(items...)
}
